
L
mean/xPlaceholder*
dtype0*(
shape:ÿÿÿÿÿÿÿÿÿ

mean/AvgPool3D	AvgPool3Dmean/x*
T0*
data_formatNCDHW*
ksize	
*
paddingSAME*
strides	

+
mean/yIdentitymean/AvgPool3D*
T0
L
most/xPlaceholder*
dtype0*(
shape:ÿÿÿÿÿÿÿÿÿ

most/MaxPool3D	MaxPool3Dmost/x*
T0*
data_formatNCDHW*
ksize	
*
paddingSAME*
strides	

+
most/yIdentitymost/MaxPool3D*
T0
R
most_valid/xPlaceholder*
dtype0*(
shape:ÿÿÿÿÿÿÿÿÿ

most_valid/MaxPool3D	MaxPool3Dmost_valid/x*
T0*
data_formatNCDHW*
ksize	
*
paddingVALID*
strides	

7
most_valid/yIdentitymost_valid/MaxPool3D*
T0"†